"""What people see: recorded attention as a plain document, pictures, pages, the terminal, and the worked example."""
