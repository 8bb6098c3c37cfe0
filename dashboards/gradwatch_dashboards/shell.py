"""The HTML around the pages."""

SHELL = """<!doctype html>
<html lang="en">
  <head>
    {%metas%}
    <meta name="color-scheme" content="light dark">
    <title>{%title%}</title>
    <link rel="icon" type="image/svg+xml" href="/assets/favicon.svg">
    <script>
      (function () {
        var chosen = null;
        try { chosen = localStorage.getItem("gradwatch-theme"); } catch (refused) { }
        var dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
        document.documentElement.dataset.theme = dark ? "dark" : "light";
      })();
    </script>
    {%css%}
  </head>
  <body>
    <a class="skip" href="#main">Skip to the content</a>
    {%app_entry%}
    <noscript>The pages of gradwatch need JavaScript; the same data is at /api/v1.</noscript>
    <footer>{%config%}{%scripts%}{%renderer%}</footer>
  </body>
</html>
"""
