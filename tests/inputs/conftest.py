"""The corpus and the projects are files to be looked at, their own tests included."""

collect_ignore = ["corpus", "projects"]
