"""In which order waiting runs are tried: fair shares, quotas, time slices."""
