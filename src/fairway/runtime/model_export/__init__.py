"""`fairway.export`: a trained model as files that can be served. Standard library only."""
