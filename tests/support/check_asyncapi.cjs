// Reads an AsyncAPI document from standard input and prints what the official parser says of it, as JSON.
const { readFileSync } = require("node:fs");
const { Parser } = require("@asyncapi/parser");

async function main() {
  const { document, diagnostics } = await new Parser().parse(readFileSync(0, "utf8"));
  const found = diagnostics.map(({ code, severity, message, path }) => ({ code, severity, message, path: path.join(".") }));
  console.log(JSON.stringify({ version: document ? document.version() : null, diagnostics: found }));
}

main();
