"""Who may have how much: slots, tasks, money; and who makes room."""
