"""What `penrose doctor` looks at: each check takes a machine, real or made up, and gives findings."""
