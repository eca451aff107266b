"""The reconcile loop: observe, plan, commit, perform."""
