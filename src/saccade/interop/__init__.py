"""Models of other libraries: records of what they attend to."""
