"""The collector: takes batches from clients, commits them, has them judged, and answers questions about runs."""
