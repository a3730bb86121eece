"""One self-contained HTML page of a site's books: facts, charts of them, and the page."""
