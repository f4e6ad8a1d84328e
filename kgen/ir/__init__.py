"""The intermediate representation: frozen, located nodes; a parser that never executes; rewriting; checks; text."""
