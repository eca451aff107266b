"""Who calls: certificates, users, pods."""
