const specs = JSON.parse(document.getElementById("specs").textContent);
for (const [name, spec] of Object.entries(specs)) {
  // Expressions are interpreted, as the page's policy lets no text become code.
  vegaEmbed("#" + name, spec, { mode: "vega-lite", renderer: "svg", actions: false, ast: true });
}
