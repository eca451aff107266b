"""HTTP/2 connections to backends, each shared by many requests."""
