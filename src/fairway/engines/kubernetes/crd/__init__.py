"""The CustomResourceDefinitions."""
