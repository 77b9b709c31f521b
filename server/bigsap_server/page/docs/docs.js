// The API page: Swagger UI on the service's own document, without the network.
window.ui = window.SwaggerUIBundle({
  url: "../openapi.json",
  dom_id: "#api",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 1,
  validatorUrl: null,
  presets: [window.SwaggerUIBundle.presets.apis],
});
