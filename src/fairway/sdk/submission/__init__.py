"""What a submission sends: the document, code, files, a function."""
