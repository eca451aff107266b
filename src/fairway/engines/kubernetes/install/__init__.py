"""The objects that `fairway install kubernetes` applies: definitions, roles, processes. Pure data, shared by all installers."""
