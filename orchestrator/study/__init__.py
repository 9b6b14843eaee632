"""What a study is: read strictly, laid out as configurations, planned before it runs."""
