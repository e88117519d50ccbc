/** How the server's command is asked for a report. */

/** The arguments that start the server as those that make a report; undefined where they do not name `lsp`. */
export function reportArguments(args: string[], target: string, folders: string[]): string[] | undefined {
  const at = args.lastIndexOf('lsp');
  return at < 0 ? undefined : [...args.slice(0, at), 'report', '--json', '--about', '-o', target, '--', ...folders];
}
