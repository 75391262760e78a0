"""Python functions as skills: `@llm_function` and `@tool`."""
