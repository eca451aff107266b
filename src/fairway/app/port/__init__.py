"""The interfaces through which the application reaches engines, stores, registries and routers."""
