"""What several families of statements share: settings, laws to draw from, runs."""
