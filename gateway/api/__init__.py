"""Answers to questions, and operators' commands: a handler for each verb."""
