"""What lectures work out and draw: explanations, pictures, symmetries, slides."""
