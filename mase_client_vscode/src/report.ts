/** A report for a helper, made by the server's command line, so that it also works after the server has died. */
import { execFile } from 'node:child_process';
import { ExtensionContext, LogOutputChannel, ProgressLocation, Uri, commands, env, extensions, version, window, workspace } from 'vscode';
import { BUNDLED } from './command';
import { inert } from './errors';
import { reportArguments } from './reporting';
import { Server } from './server';
import { SECTION } from './settings';

/** The doctor imports the user's torch, which may take long. */
const LONGEST_MS = 120_000;
const KINDS = ['ssh-remote', 'wsl', 'dev-container', 'attached-container', 'codespaces', 'tunnel'];
const SHOW = 'Show the File';
const COPY = 'Copy Its Path';

interface Report {
  path: string;
  text: string;
}

/** Make a report, and show all its contents to the user before they send it. */
export async function collectReport(server: Server, log: LogOutputChannel, context: ExtensionContext): Promise<void> {
  const folder = Uri.joinPath(context.globalStorageUri, 'reports');
  const name = `mase-report-${new Date().toISOString().slice(0, 19).replaceAll(':', '')}`;
  try {
    const options = { location: ProgressLocation.Notification, title: 'MASE: collecting a report' };
    const report = await window.withProgress(options, () => made(server, Uri.joinPath(folder, `${name}.zip`)));
    const page = Uri.joinPath(folder, `${name}.md`);
    await workspace.fs.writeFile(page, Buffer.from(report.text));
    await window.showTextDocument(page, { preview: false });
    await offer(report);
  } catch (error) {
    log.error(`The report could not be made: ${error}`);
    const text = `The report could not be made: ${error instanceof Error ? error.message : error}`;
    if (await window.showErrorMessage(inert(text), 'Show Log')) log.show(true);
  }
}

async function offer({ path }: Report): Promise<void> {
  const text = 'This is the whole content of the report. Read it before you send the file.';
  const chosen = await window.showInformationMessage(inert(text), SHOW, COPY);
  if (chosen === SHOW) await commands.executeCommand('revealFileInOS', Uri.file(path));
  if (chosen === COPY) await env.clipboard.writeText(path);
}

async function made(server: Server, target: Uri): Promise<Report> {
  const found = await server.command();
  if ('tried' in found) throw new Error('no Python was found that runs the server');
  const folders = workspace.workspaceFolders?.map((folder) => folder.uri) ?? [];
  const args = reportArguments(found.args, target.fsPath, folders.map((folder) => folder.fsPath));
  if (args === undefined) throw new Error('mase.server.command does not name the command lsp');
  const about = {
    editor: `${env.appName} ${version} on ${process.platform}${remote()}`,
    extension: String(extensions.getExtension('mase.mase-vscode')?.packageJSON.version ?? ''),
    interpreters: Object.fromEntries(folders.map((folder) => [folder.fsPath, server.interpreter(folder)])),
    settings: JSON.parse(JSON.stringify(workspace.getConfiguration(SECTION))) as unknown,
  };
  return JSON.parse(await output(found.command, args, JSON.stringify(about))) as Report;
}

/** Whether the editor runs on another machine than its window; other kinds than these contain a machine's name. */
function remote(): string {
  if (env.remoteName === undefined) return '';
  return KINDS.includes(env.remoteName) ? `, ${env.remoteName}` : ', remote';
}

/** The output of a command that reads `input`; if it fails, rejects with the end of its error output. */
function output(command: string, args: string[], input: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { cwd: BUNDLED, timeout: LONGEST_MS, maxBuffer: 64 << 20 };
    const child = execFile(command, args, options, (error, printed, complaint) => {
      if (error === null) resolve(printed);
      else reject(new Error(complaint.trim().split('\n').at(-1) || error.message));
    });
    child.stdin?.on('error', () => undefined); // it ended before it read; its own message is reported
    child.stdin?.end(input);
  });
}
