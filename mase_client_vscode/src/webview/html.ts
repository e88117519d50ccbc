/** The HTML of a page, which may load only its own script and styles, and send nothing anywhere. */

/** The parts of a page; addresses are the page's own. `allow`: further parts of its policy, e.g. `worker-src blob:`. */
export interface Parts {
  title: string;
  script: string;
  style: string;
  /** The origin of `style`. */
  source: string;
  nonce: string;
  allow?: string[];
}

export function html({ title, script, style, source, nonce, allow = [] }: Parts): string {
  const policy = ["default-src 'none'", `script-src 'nonce-${nonce}'`, `style-src ${source}`, ...allow].join('; ');
  return `<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta http-equiv="Content-Security-Policy" content="${escaped(policy)}">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>${escaped(title)}</title>
  <link rel="stylesheet" href="${escaped(style)}">
</head>
<body>
  <script nonce="${nonce}" src="${escaped(script)}"></script>
</body>
</html>`;
}

/** Escape a text for HTML, inside quotes too. */
export function escaped(text: string): string {
  const names: Record<string, string> = { '&': 'amp', '<': 'lt', '>': 'gt', '"': 'quot' };
  return text.replace(/[&<>"]/g, (character) => `&${names[character]};`);
}
