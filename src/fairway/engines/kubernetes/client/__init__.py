"""Access to the Kubernetes API: credentials (`config`, `identity`), `connection`, verbs (`api`), `watch`, `mirror`."""
