"""The world of a run: performs effects. Only this code touches models, files, people and other runs."""
