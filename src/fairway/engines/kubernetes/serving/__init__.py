"""Services on a cluster: a Deployment a revision, a router in front, and the planner of one machine behind."""
