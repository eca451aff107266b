"""One module for each format of model files, or for formats that share a reader."""
