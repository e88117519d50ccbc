/** The status item: how the trace of the active editor's file stands. */
import {
  Disposable,
  MarkdownString,
  StatusBarAlignment,
  ThemeColor,
  Uri,
  commands,
  window,
  workspace,
} from 'vscode';
import { pythonEditor } from './active';
import { Interpreters } from './environments/interpreters';
import { fileOf } from './notebooks';
import { MasePipelines, MaseStatus, TraceState } from './protocol';
import { Server, ServerState } from './server';
import { SlowLines } from './slow';

type Look = { icon: string; text: string; color?: 'warning' | 'error' };

const SERVER_LOOKS: Record<Exclude<ServerState, 'running'>, Look> = {
  stopped: { icon: 'circle-slash', text: 'stopped' },
  starting: { icon: 'loading~spin', text: 'starting' },
  missing: { icon: 'warning', text: 'no server', color: 'warning' },
  crashed: { icon: 'error', text: 'server crashed', color: 'error' },
  untrusted: { icon: 'shield', text: 'not trusted' },
};

const TRACE_LOOKS: Record<TraceState, Look> = {
  queued: { icon: 'loading~spin', text: 'waiting' },
  starting: { icon: 'loading~spin', text: 'importing' },
  tracing: { icon: 'loading~spin', text: 'tracing' },
  ready: { icon: 'check', text: 'ready' },
  // An error, or else a warning that says why nothing can be shown: the word has to fit both.
  failed: { icon: 'warning', text: 'problem', color: 'warning' },
  crashed: { icon: 'error', text: 'crashed', color: 'error' },
  superseded: { icon: 'loading~spin', text: 'waiting' },
  untrusted: { icon: 'shield', text: 'not trusted' },
  no_model: { icon: 'dash', text: 'no model' },
  no_environment: { icon: 'warning', text: 'no interpreter', color: 'warning' },
};

const LINKS = [
  '[$(refresh) Trace again](command:mase.retrace)',
  '[$(debug-restart) Restart server](command:mase.restart)',
  '[$(output) Log](command:mase.showLog)',
  '[$(gear) Settings](command:mase.openSettings)',
].join('&nbsp;&nbsp; ');

const PASSES = '[$(layers) Passes](command:mase.pipeline)';

export class StatusItem implements Disposable {
  private readonly item = window.createStatusBarItem('status', StatusBarAlignment.Right, 100);
  private readonly traces = new Map<string, MaseStatus>();
  private readonly pipelines = new Map<string, MasePipelines['pipelines']>();
  private readonly slow = new SlowLines();
  private readonly listeners: Disposable[];
  private server: ServerState = 'stopped';

  constructor(
    private readonly mase: Server,
    private readonly interpreters: Interpreters,
  ) {
    this.item.name = 'MASE';
    this.item.command = 'mase.showActions';
    this.listeners = [
      mase.onDidChangeState((state) => this.serverChanged(state)),
      mase.onStatus((status) => this.traced(status)),
      mase.onSlow(({ uri, text }) => this.slowed(uri, text)),
      mase.onPipelines((told) => this.transformed(told)),
      window.onDidChangeActiveTextEditor(() => this.show()),
      window.onDidChangeVisibleTextEditors(() => this.show()),
      window.onDidChangeActiveNotebookEditor(() => this.show()),
      interpreters.onDidChange(() => this.show()),
    ];
    this.show();
  }

  /** What is shown now, icon left out; undefined while hidden. Read by tests. */
  get text(): string | undefined {
    return pythonEditor() ? this.item.text.replace(/^\$\([^)]*\) /, '') : undefined;
  }

  dispose(): void {
    Disposable.from(...this.listeners, this.item).dispose();
  }

  private serverChanged(state: ServerState): void {
    this.server = state;
    if (state !== 'running') [this.traces, this.pipelines, this.slow].forEach((known) => known.clear());
    this.show();
  }

  private traced(status: MaseStatus): void {
    const uri = Uri.parse(status.uri).toString(); // servers and editors escape differently
    this.traces.set(uri, status);
    this.slow.traced(uri, status);
    this.show();
  }

  private slowed(uri: string, text: string): void {
    this.slow.told(Uri.parse(uri).toString(), text);
    this.show();
  }

  private transformed({ uri, pipelines }: MasePipelines): void {
    this.pipelines.set(Uri.parse(uri).toString(), pipelines);
    this.show();
  }

  /** In which Python the models of a file run, and which server serves them. */
  private environment(file: Uri): string {
    const chosen = this.interpreters.of(workspace.getWorkspaceFolder(file)?.uri);
    const python = chosen === undefined ? 'Python: the .venv of the folder, else python3.' : `Python: ${chosen}`;
    return this.mase.origin === undefined ? python : `${python}\nServer: ${this.mase.origin}`;
  }

  private show(): void {
    const editor = pythonEditor();
    const file = editor && fileOf(editor.document);
    if (file === undefined) return this.item.hide();
    const trace = this.traces.get(file.toString());
    const look = this.server !== 'running' ? SERVER_LOOKS[this.server] : trace && TRACE_LOOKS[trace.state];
    const stale = trace?.stale ? ', older hints' : '';
    const pipelines = this.pipelines.get(file.toString()) ?? {};
    const count = Object.values(pipelines).flat().length;
    void commands.executeCommand('setContext', 'mase.pipelines', count > 0);
    const passes = count === 0 ? '' : ` · ${count} ${count === 1 ? 'pass' : 'passes'}`;
    const text = (this.server === 'running' && this.slow.now(file.toString())) || look?.text;
    this.item.text = `$(${look?.icon ?? 'check'}) MASE${look ? `: ${text}${stale}${passes}` : ''}`;
    this.item.tooltip = tooltip(trace, pipelines, this.environment(file), this.slow.last(file.toString()));
    this.item.backgroundColor = look?.color && new ThemeColor(`statusBarItem.${look.color}Background`);
    this.item.show();
  }
}

function tooltip(
  trace: MaseStatus | undefined,
  pipelines: MasePipelines['pipelines'],
  environment: string,
  slow: string | undefined,
): MarkdownString {
  const text = new MarkdownString('', true);
  text.isTrusted = { enabledCommands: ['mase.retrace', 'mase.restart', 'mase.showLog', 'mase.openSettings', 'mase.pipeline'] };
  if (trace?.message) text.appendText(trace.message).appendMarkdown('\n\n');
  if (trace?.state === 'ready') text.appendMarkdown(`Traced in ${(trace.seconds * 1000).toFixed(0)} ms.\n\n`);
  if (slow !== undefined) text.appendText(`What took long: ${slow}`).appendMarkdown('\n\n');
  if (trace?.stale) text.appendMarkdown('The hints shown are those of the last text that could be traced.\n\n');
  text.appendText(environment).appendMarkdown('\n\n');
  for (const [model, steps] of Object.entries(pipelines)) {
    text.appendText(`Passes on ${model}: ${steps.join('; ')}`).appendMarkdown('\n\n');
  }
  return text.appendMarkdown(Object.keys(pipelines).length > 0 ? `${PASSES}&nbsp;&nbsp; ${LINKS}` : LINKS);
}
