/** The server's command line for a report. */

/** Turn the arguments that start the server into those for a report; undefined if they do not contain `lsp`. */
export function reportArguments(args: string[], target: string, folders: string[]): string[] | undefined {
  const at = args.lastIndexOf('lsp');
  return at < 0 ? undefined : [...args.slice(0, at), 'report', '--json', '--about', '-o', target, '--', ...folders];
}
