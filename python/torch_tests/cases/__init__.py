"""What every rank of a world runs; a file is a family of entry points."""
