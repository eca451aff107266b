"""Guards that judge a new version during a release."""
