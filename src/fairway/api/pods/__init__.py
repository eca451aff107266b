"""Routes that pods of runs call: metrics, downloads, uploads, samples."""
