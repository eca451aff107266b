"""The one door to the Kubernetes API: whom we are (`config`, `identity`), `connection`, verbs (`api`), `watch`, `mirror`."""
