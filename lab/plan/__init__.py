"""Where a head would put a model, from the file's header alone."""
