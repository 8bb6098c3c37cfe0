"""What gradwatch feeds to other systems."""
