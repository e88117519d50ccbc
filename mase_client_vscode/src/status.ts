/** The status item: the state of the active editor's file. */
import {
  Disposable,
  MarkdownString,
  StatusBarAlignment,
  TextDocument,
  ThemeColor,
  Uri,
  commands,
  window,
  workspace,
} from 'vscode';
import { pythonEditor } from './active';
import { Interpreters } from './environments/interpreters';
import { fileOf } from './notebooks';
import { MasePipelines, MaseStatus, TraceState, UnshownModel } from 'mase-client/records';
import { Server, ServerState } from './server';
import { SlowLines } from './slow';

type Look = { icon: string; text: string; color?: 'warning' | 'error' };

const BUSY_ICON = 'loading~spin';

const SERVER_LOOKS: Record<Exclude<ServerState, 'running'>, Look> = {
  stopped: { icon: 'circle-slash', text: 'stopped' },
  starting: { icon: BUSY_ICON, text: 'starting' },
  missing: { icon: 'warning', text: 'no server', color: 'warning' },
  crashed: { icon: 'error', text: 'server crashed', color: 'error' },
  untrusted: { icon: 'shield', text: 'not trusted' },
};

/** The characters of a state that lasts for a moment: the item must not change its width at each save. */
const BUSY = 'starting'.length;

const TRACE_LOOKS: Record<TraceState, Look> = {
  queued: { icon: BUSY_ICON, text: 'waiting'.padEnd(BUSY, '\u00a0') },
  starting: { icon: BUSY_ICON, text: 'starting' },
  tracing: { icon: BUSY_ICON, text: 'tracing'.padEnd(BUSY, '\u00a0') },
  ready: { icon: 'check', text: 'ready' },
  // An error, or else a warning that explains why nothing can be shown: the word must fit both.
  failed: { icon: 'warning', text: 'problem', color: 'warning' },
  crashed: { icon: 'error', text: 'crashed', color: 'error' },
  superseded: { icon: BUSY_ICON, text: 'waiting'.padEnd(BUSY, '\u00a0') },
  untrusted: { icon: 'shield', text: 'not trusted' },
  no_model: { icon: 'dash', text: 'no model' },
  no_environment: { icon: 'warning', text: 'no interpreter', color: 'warning' },
};

/** The most models that one sentence names. */
const NAMED = 5;

const LINKS = [
  '[$(refresh) Trace again](command:mase.retrace)',
  '[$(debug-restart) Restart server](command:mase.restart)',
  '[$(dashboard) Device](command:mase.pickDevice)',
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
      workspace.onDidChangeTextDocument(({ document }) => this.edited(document)),
      workspace.onDidSaveTextDocument(() => this.show()),
      interpreters.onDidChange(() => this.show()),
    ];
    this.show();
  }

  /** The shown text without the icon; undefined while hidden. Read by tests. */
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
    // While somebody types, a trace comes with every pause: the last result stays until the next one is there.
    const passing = status.unsaved && TRACE_LOOKS[status.state].icon === BUSY_ICON && this.traces.has(uri);
    if (!passing) this.traces.set(uri, status);
    this.slow.traced(uri, status);
    this.show();
  }

  private edited(document: TextDocument): void {
    if (document === pythonEditor()?.document) this.show();
  }

  private slowed(uri: string, text: string): void {
    this.slow.told(Uri.parse(uri).toString(), text);
    this.show();
  }

  private transformed({ uri, pipelines }: MasePipelines): void {
    this.pipelines.set(Uri.parse(uri).toString(), pipelines);
    this.show();
  }

  /** The Python that runs a file's models, and the server that serves them. */
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
    const look = this.server !== 'running' ? SERVER_LOOKS[this.server] : trace && lookOf(trace);
    const stale = trace?.stale ? ', older hints' : '';
    const dirty = this.server === 'running' && trace !== undefined && editor?.document.isDirty;
    const unsaved = !dirty ? '' : trace.unsaved ? ' · live' : ' · unsaved';
    const pipelines = this.pipelines.get(file.toString()) ?? {};
    const count = Object.values(pipelines).flat().length;
    void commands.executeCommand('setContext', 'mase.pipelines', count > 0);
    const passes = count === 0 ? '' : ` · ${count} ${count === 1 ? 'pass' : 'passes'}`;
    const text = (this.server === 'running' && this.slow.now(file.toString())) || look?.text;
    this.item.text = `$(${look?.icon ?? 'check'}) MASE${look ? `: ${text}${stale}${unsaved}${passes}` : ''}`;
    this.item.tooltip = tooltip(trace, pipelines, this.environment(file), this.slow.last(file.toString()), dirty);
    this.item.backgroundColor = look?.color && new ThemeColor(`statusBarItem.${look.color}Background`);
    this.item.show();
  }
}

/** A trace is only "ready" where every model of the file is shown. */
function lookOf(trace: MaseStatus): Look {
  const missing = trace.unshown?.length ?? 0; // an older server says nothing of it
  if (missing === 0 || (trace.state !== 'ready' && trace.state !== 'failed')) return TRACE_LOOKS[trace.state];
  const all = missing + trace.models.length;
  const text = all === 1 ? 'model not shown' : `${missing} of ${all} models not shown`;
  return { icon: 'warning', text, color: 'warning' };
}

/** The models that are not shown, one sentence for each reason. */
function groups(unshown: UnshownModel[]): string[] {
  const places = new Map<string, string[]>();
  for (const { name, line, why, step } of unshown) {
    const reason = `${why} ${step}`.trim();
    places.set(reason, [...(places.get(reason) ?? []), `${name} (line ${line})`]);
  }
  return [...places].map(([reason, models]) => {
    const others = models.length > NAMED ? ` and ${models.length - NAMED} others` : '';
    return `${models.slice(0, NAMED).join(', ')}${others} ${models.length === 1 ? 'is' : 'are'} not shown. ${reason}`;
  });
}

function tooltip(
  trace: MaseStatus | undefined,
  pipelines: MasePipelines['pipelines'],
  environment: string,
  slow: string | undefined,
  dirty: boolean | undefined,
): MarkdownString {
  const text = new MarkdownString('', true);
  text.isTrusted = { enabledCommands: ['mase.retrace', 'mase.restart', 'mase.showLog', 'mase.openSettings', 'mase.pipeline', 'mase.pickDevice'] };
  const unshown = groups(trace?.unshown ?? []);
  if (trace?.message && (trace.state !== 'ready' || unshown.length === 0)) text.appendText(trace.message).appendMarkdown('\n\n');
  for (const told of unshown) text.appendMarkdown('$(warning) ').appendText(told).appendMarkdown('\n\n');
  if (trace?.state === 'ready' && trace.unshown?.length > 0 && trace.models.length > 0) {
    text.appendMarkdown('$(check) ').appendText(`Shown: ${trace.models.join(', ')}.`).appendMarkdown('\n\n');
  }
  if (trace?.state === 'ready') text.appendMarkdown(`Traced in ${(trace.seconds * 1000).toFixed(0)} ms.\n\n`);
  if (slow !== undefined) text.appendText(`Slow: ${slow}`).appendMarkdown('\n\n');
  if (trace?.stale) text.appendMarkdown('MASE could not trace the present text: the hints are those of the last text that it could trace.\n\n');
  if (dirty && trace?.unsaved) text.appendMarkdown('The text is not saved. The shapes are those of the text that you typed.\n\n');
  else if (dirty) text.appendMarkdown('The text is not saved. The shapes are those of the saved text; save to update them.\n\n');
  text.appendText(environment).appendMarkdown('\n\n');
  for (const [model, steps] of Object.entries(pipelines)) {
    text.appendText(`Passes on ${model}: ${steps.join('; ')}`).appendMarkdown('\n\n');
  }
  return text.appendMarkdown(Object.keys(pipelines).length > 0 ? `${PASSES}&nbsp;&nbsp; ${LINKS}` : LINKS);
}
