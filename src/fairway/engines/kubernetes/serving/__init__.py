"""Services on Kubernetes: a Deployment for each revision, a router in front, and the same planner as on a single machine."""
