/** The page of `mase-server view`: the source with its shapes; beside it the graph, the costs, the problems, the passes. */
import * as costs from '../../costs/messages';
import * as graph from '../../graph/messages';
import { counted, sqnrText } from '../../graph/texts';
import { element } from '../../webview/page/elements';
import '../../webview/page/theme.css';
import { costsOnLine, graphOf, lineOfRow, LineRow, ModelSheet, operationsOnLine, ProblemRow, rowsOnLine, Sheet } from '../sheet';
import { Frame, Parts } from './frame';
import './view.css';

const TABS = { graph: 'Graph', costs: 'Costs', problems: 'Problems', passes: 'Passes' };
type Tab = keyof typeof TABS;

const NO_WEIGHTS = 'This page has no weights. Open the file in an editor to see them.';
const ENDED = 'mase-server has ended, so this page no longer follows saves.';

class Viewer {
  private readonly parts = read<Parts>('parts');
  private sheet: Sheet | undefined;
  /** The title of the chosen model. */
  private title = '';
  private tab: Tab = 'graph';
  /** The chosen line of the source; 0 for none. */
  private line = 0;
  private drawn: graph.Graph | undefined;
  private graphs: Frame<graph.ToPage, graph.FromPage> | undefined;
  private tables: Frame<costs.ToPage, costs.FromPage> | undefined;
  private readonly head = element('header', { class: 'toolbar' });
  private readonly notice = element('div', { class: 'notice', role: 'status' }, 'Waiting for the first trace…');
  private readonly source = element('main', { class: 'source', tabindex: 0, 'aria-label': 'Source' });
  private readonly details = element('div', { class: 'details', role: 'status' });
  private readonly tabs = element('nav', { class: 'toolbar', role: 'tablist' });
  private readonly side = element('div', { class: 'side' });

  constructor() {
    document.body.classList.add('viewer');
    const left = element('section', { class: 'pane' }, this.source, this.details);
    const right = element('section', { class: 'pane' }, this.tabs, this.side);
    document.body.append(this.head, this.notice, element('div', { class: 'panes' }, left, right));
    this.source.addEventListener('click', ({ target }) => this.choose(lineOf(target)));
    this.source.addEventListener('keydown', (event) => this.pressed(event));
    const whole = read<Sheet | null>('sheet');
    if (whole === null) this.follow();
    else this.show(whole);
  }

  /** Ask the server for the sheet, now and whenever there is a newer one. */
  private follow(): void {
    const events = new EventSource('events');
    events.onmessage = () => void fetch('sheet').then((answer) => answer.json()).then((sheet: Sheet | null) => sheet && this.show(sheet));
    events.onerror = () => this.tell(ENDED);
  }

  private get model(): ModelSheet | undefined {
    return this.sheet?.models.find(({ title }) => title === this.title) ?? this.sheet?.models[0];
  }

  private tell(text: string): void {
    this.notice.textContent = text;
    this.notice.hidden = text === '';
  }

  private show(sheet: Sheet): void {
    this.sheet = sheet;
    document.title = `${sheet.file} - mase-server`;
    this.tell(noticeOf(sheet));
    this.drawHead(sheet);
    const { scrollTop } = this.source;
    this.source.replaceChildren(...sheet.lines.flatMap((line) => rowsOf(line, sheet.problems)));
    this.source.scrollTop = scrollTop;
    this.drawn = this.model && graphOf(this.model);
    this.drawSide();
    this.mark();
  }

  private drawHead({ models, file, version }: Sheet): void {
    const titles = models.map(({ title }) => element('option', { value: title, selected: title === this.model?.title }, title));
    const picker = element('select', { 'aria-label': 'Model', hidden: models.length < 2 }, ...titles);
    picker.addEventListener('change', () => this.pick(picker.value));
    const facts = this.model === undefined ? '' : `${models.length < 2 ? `${this.model.title}: ` : ''}${this.model.facts}`;
    const name = element('strong', {}, file);
    this.head.replaceChildren(name, picker, element('span', { class: 'facts' }, facts), element('span', { class: 'space' }), `mase-server ${version}`);
  }

  /** Show another model. */
  private pick(title: string): void {
    this.title = title;
    this.graphs = this.tables = undefined; // what was open and chosen there belongs to the other model
    if (this.sheet !== undefined) this.show(this.sheet);
    const line = this.model?.line ?? 0;
    if (line > 0) this.choose(line);
  }

  // The side with its tabs.

  private drawSide(): void {
    const count = this.sheet?.problems.length ?? 0;
    const named = Object.entries(TABS) as [Tab, string][];
    this.tabs.replaceChildren(
      ...named.map(([tab, name]) => {
        const text = tab === 'problems' && count > 0 ? `${name} (${count})` : name;
        const button = element('button', { role: 'tab', 'aria-selected': `${tab === this.tab}`, 'aria-pressed': `${tab === this.tab}` }, text);
        button.addEventListener('click', () => this.open(tab));
        return button;
      }),
    );
    const shown = this.content();
    if (this.side.firstChild !== shown) this.side.replaceChildren(shown);
  }

  private open(tab: Tab): void {
    this.tab = tab;
    this.drawSide();
    this.mark();
  }

  private content(): HTMLElement {
    if (this.tab === 'problems') return this.problems();
    if (this.model === undefined) return list(['There is no model to show.']);
    if (this.tab === 'passes') return list(passesOf(this.model));
    if (this.tab === 'graph') {
      if (this.graphs === undefined) this.graphs = new Frame(this.parts, 'graph', () => this.beginGraph(), (message) => this.ofGraph(message));
      else this.postGraph();
      return this.graphs.element;
    }
    if (this.tables === undefined) this.tables = new Frame(this.parts, 'costs', () => this.postCosts(), (message) => this.ofCosts(message));
    else this.postCosts();
    return this.tables.element;
  }

  private beginGraph(): void {
    this.graphs?.post({ type: 'layout', source: this.parts['layout.js'] ?? '' });
    this.postGraph();
    this.mark();
  }

  private postGraph(): void {
    if (this.drawn !== undefined) this.graphs?.post({ type: 'graph', graph: this.drawn });
  }

  private postCosts(): void {
    if (this.model !== undefined) this.tables?.post({ type: 'table', table: this.model.costs });
    this.mark();
  }

  private problems(): HTMLElement {
    const { problems = [], unshown = [] } = this.sheet ?? {};
    const rows = problems.map((problem) => {
      const row = element('button', { class: `problem ${problem.severity}` }, `Line ${problem.line}: ${textOf(problem)}`);
      row.addEventListener('click', () => this.choose(problem.line));
      return row;
    });
    return rows.length + unshown.length > 0 ? element('div', { class: 'list' }, ...rows, ...unshown.map(paragraph)) : list(['No problem was found.']);
  }

  // What the pages in the frames ask for.

  private ofGraph(message: graph.FromPage): void {
    if (message.type === 'go') this.choose(this.drawn && this.sheet && lineOfRow(this.drawn, this.sheet.path, message.row));
    else if (message.type === 'export') download(`${this.model?.title}.${message.format}`, message.format === 'png' ? bytesOf(message.data) : message.data);
    else if (message.type === 'weights') this.graphs?.post({ type: 'weights', of: message.of, problem: NO_WEIGHTS });
    else if (message.type === 'choose') this.graphs?.post({ type: 'choices', choices: message.choices });
    else if (message.type === 'costs') this.open('costs');
  }

  private ofCosts(message: costs.FromPage): void {
    if (message.type === 'goto') {
      const places = this.model?.costs.rows.find(({ id }) => id === message.id)?.places ?? [];
      this.choose(places.find(({ file }) => file === this.sheet?.path)?.line);
    } else if (message.type === 'copy') {
      void navigator.clipboard.writeText(message.text).then(
        () => this.tell(`${counted(message.rows, 'row')} copied.`),
        (error: unknown) => this.tell(`The rows could not be copied: ${error}`),
      );
    } else if (message.type === 'save') download(`${this.model?.title}-costs.csv`, message.text);
    else this.open('graph');
  }

  // The chosen line.

  private choose(line: number | undefined): void {
    if (line === undefined) return this.tell(`That code is not in ${this.sheet?.file ?? 'this file'}.`);
    if (line === 0) return;
    this.line = line;
    this.tell(this.sheet === undefined ? '' : noticeOf(this.sheet));
    this.mark();
    for (const each of this.source.querySelectorAll(`[data-of="${line}"], [data-line="${line}"]`)) each.scrollIntoView({ block: 'nearest' });
  }

  private rowOf(line: number): HTMLElement | undefined {
    return this.source.querySelector<HTMLElement>(`[data-line="${line}"]`) ?? undefined;
  }

  /** Light the chosen line, its operations in the graph, and its rows in the table. */
  private mark(): void {
    this.source.querySelector('.chosen')?.classList.remove('chosen');
    this.details.hidden = true;
    if (this.line === 0 || this.sheet === undefined || this.drawn === undefined || this.model === undefined) return;
    this.rowOf(this.line)?.classList.add('chosen');
    const [{ path }, line] = [this.sheet, this.line];
    const operations = operationsOnLine(this.drawn, path, line);
    this.details.hidden = operations.length === 0;
    this.details.replaceChildren(...operations.map(paragraph));
    this.graphs?.post({ type: 'cursor', rows: rowsOnLine(this.drawn, path, line), moved: true });
    this.tables?.post({ type: 'cursor', ids: costsOnLine(this.model.costs, path, line) });
  }

  private pressed(event: KeyboardEvent): void {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined || this.rowOf(this.line + step) === undefined) return;
    event.preventDefault();
    this.choose(this.line + step);
  }
}

function read<T>(id: string): T {
  return JSON.parse(document.getElementById(id)?.textContent ?? 'null') as T;
}

function noticeOf({ file, message, stale, edited, gone, models }: Sheet): string {
  if (gone) return `${file} is gone; it will be shown when it is back.`;
  if (edited) return `${file} was changed, and its present text is not traced yet.`;
  if (stale) return `${message} The shapes are those of the last text that could be traced.`.trim();
  return models.length > 0 ? '' : message;
}

function rowsOf({ number, parts, tips }: LineRow, problems: ProblemRow[]): HTMLElement[] {
  const left = [...tips];
  const texts = parts.map(([text, style]) => {
    const names = style.split(' ').filter((name) => name !== '').map((name) => `t-${name}`);
    return element('span', { class: names.join(' ') || undefined, title: style === 'hint' ? left.shift() : undefined }, text);
  });
  const gutter = element('span', { class: 'number' }, number > 0 ? `${number}` : '');
  const row = element('div', { class: 'row', 'data-line': number > 0 ? number : undefined }, gutter, element('code', {}, ...texts));
  const found = number > 0 ? problems.filter(({ line }) => line === number) : [];
  return [row, ...found.map((problem) => element('div', { class: `problem ${problem.severity}`, 'data-of': number }, textOf(problem)))];
}

function lineOf(target: EventTarget | null): number {
  const row = target instanceof Element ? target.closest<HTMLElement>('[data-line], [data-of]') : null;
  return Number(row?.dataset['line'] ?? row?.dataset['of'] ?? 0);
}

function textOf({ severity, code, message }: ProblemRow): string {
  return `${severity}[${code}]: ${message}`;
}

function passesOf({ passes: { steps = [], problem, summary } }: ModelSheet): string[] {
  if (steps.length === 0) return ['No pass is applied.'];
  const numbered = steps.map((step, index) => `${index + 1}. ${step}`);
  const sizes = summary?.parameter_bytes;
  const told = sizes === undefined ? [] : [`Weights: ${sizes.map((size) => size.toLocaleString('en-US')).join(' → ')} bytes`];
  const noise = typeof summary?.sqnr === 'number' ? [`Outputs: ${sqnrText(summary.sqnr)} against the original model`] : [];
  return [...numbered, ...told, ...noise, ...(problem ? [problem] : [])];
}

function paragraph(text: string): HTMLElement {
  return element('p', {}, text);
}

function list(texts: string[]): HTMLElement {
  return element('div', { class: 'list' }, ...texts.map(paragraph));
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

function download(name: string, content: BlobPart): void {
  const href = URL.createObjectURL(new Blob([content]));
  element('a', { href, download: name.replace(/[^\w.-]+/g, '_') }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

new Viewer();
