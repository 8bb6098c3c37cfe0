"""The Dash pages of gradwatch."""
