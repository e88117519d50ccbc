/** The page of the cost table: the user's choices and the extension's messages. */
import '../../webview/page/theme.css';
import { element } from '../../webview/page/elements';
import { Host } from '../../webview/page/host';
import { columnsOf } from '../columns';
import { wish } from '../keys';
import { FromPage, State, ToPage } from '../messages';
import { asCsv, asTsv } from '../sheet';
import { Shown, Tree, View, nextSort } from '../tree';
import './costs.css';
import { Grid } from './grid';
import { Memory } from './memory';
import { Toolbar } from './toolbar';

/** The scroll position is stored once scrolling stops. */
const REST_MS = 150;

class Page {
  private readonly host = new Host<ToPage, FromPage, State>();
  private readonly state: State = this.host.remembered ?? {
    path: '', model: '', sort: null, filter: '', flat: false, operators: true, open: null, selected: '', scroll: 0,
  };
  private readonly grid = new Grid({
    sortBy: (column) => this.change({ sort: nextSort(this.state.sort, column) }),
    toggle: (id) => this.toggle(id),
    select: (id) => this.select(id),
    goTo: (id, focus) => this.host.post({ type: 'goto', id, focus }),
  });
  private readonly bar = new Toolbar(this.state, {
    change: (change) => this.change(change),
    open: (all) => this.change({ open: all ? [...(this.tree?.all() ?? [])] : [] }),
    copy: () => this.host.post({ type: 'copy', text: asTsv(this.shown, this.columns), rows: this.shown.length }),
    save: () => this.host.post({ type: 'save', text: asCsv(this.shown, this.columns) }),
    graph: () => this.host.post({ type: 'graph' }),
    device: () => this.host.post({ type: 'device' }),
    down: () => this.grid.focus(),
  });
  private readonly memory = new Memory({
    line: (file, line, focus) => this.host.post({ type: 'line', file, line, focus }),
    device: () => this.host.post({ type: 'device' }),
    compare: () => this.host.post({ type: 'compare' }),
  });
  private readonly notice = element('div', { class: 'notice', role: 'status' }, 'Waiting for the costs…');
  private readonly summary = element('div', { class: 'summary', role: 'status' });
  private tree: Tree | undefined;
  /** Is a run shown that is computed again? */
  private older = false;
  private rested: ReturnType<typeof setTimeout> | undefined;
  private shown: Shown[] = [];
  /** The rows at the editor's cursor. */
  private cursor: string[] = [];

  constructor() {
    document.body.append(this.bar.element, this.notice, this.memory.element, this.grid.element, this.summary);
    this.grid.element.addEventListener('scroll', () => this.scrolled());
    this.grid.element.addEventListener('keydown', (event) => this.pressed(event));
    addEventListener('keydown', (event) => this.find(event));
    this.host.connect((message) => this.told(message));
  }

  private get view(): View {
    return { ...this.state, open: new Set(this.state.open ?? []) };
  }

  private get columns() {
    return columnsOf(this.tree?.rows ?? [], this.older);
  }

  private told(message: ToPage): void {
    if (message.type === 'cursor') return this.follow(message.ids);
    if (message.type === 'select') return this.show(message.id);
    this.notice.hidden = message.problem === undefined;
    this.notice.textContent = message.problem ?? '';
    if (message.type === 'nothing') {
      this.tree = undefined;
      this.shown = [];
      this.grid.element.hidden = true;
      this.memory.draw(null, false);
      return void (this.summary.textContent = '');
    }
    const first = this.tree === undefined;
    this.tree = new Tree(message.table);
    this.older = message.table.older;
    this.memory.draw(message.table.run, this.older, message.table.change);
    [this.state.path, this.state.model] = [message.table.path, message.table.model];
    this.state.open ??= [...this.tree.firstOpen()];
    this.grid.element.hidden = false;
    this.draw();
    if (first) this.grid.element.scrollTop = this.state.scroll;
  }

  /** Highlight the rows at the cursor, and scroll to the first one. */
  private follow(ids: string[]): void {
    this.cursor = ids;
    this.draw();
    const [first] = this.current;
    if (first !== undefined && !this.grid.hasFocus) this.grid.reveal(first);
  }

  /** Select a row, and open the rows that hide it. */
  private show(id: string): void {
    const above = this.tree?.lineage(id).slice(0, -1) ?? [];
    const open = [...new Set([...(this.state.open ?? []), ...above.map((row) => row.id)])];
    const filter = this.tree?.shown(this.view).some(({ row }) => row.id === id) ? this.state.filter : '';
    this.bar.filtered(filter);
    this.change({ open, filter, selected: id });
    this.grid.reveal(id);
  }

  private get current(): Set<string> {
    const shown = new Map(this.shown.map((each) => [each.row.id, each]));
    return new Set(this.cursor.map((id) => this.tree?.standIn(id, shown)).filter((id) => id !== undefined));
  }

  private change(change: Partial<State>): void {
    Object.assign(this.state, change);
    this.draw();
  }

  private toggle(id: string): void {
    const open = new Set(this.state.open);
    if (!open.delete(id)) open.add(id);
    this.change({ open: [...open], selected: id });
  }

  private select(id: string): void {
    this.change({ selected: id });
    this.grid.reveal(id);
  }

  private draw(): void {
    const whole = this.tree?.rows[0];
    if (this.tree === undefined || whole === undefined) return;
    this.shown = this.tree.shown(this.view);
    if (!this.shown.some(({ row }) => row.id === this.state.selected)) this.state.selected = this.shown[0]?.row.id ?? '';
    this.bar.draw(this.state);
    const { sort, flat, selected } = this.state;
    this.grid.draw({ shown: this.shown, columns: this.columns, whole, sort, flat, selected, current: this.current });
    this.summary.textContent = this.said(whole.name);
    this.host.remember(this.state);
  }

  private said(model: string): string {
    const rows = this.tree?.rows ?? [];
    const shared = rows.filter((row) => row.shared.length > 0).map((row) => row.id);
    const count = `${model}: ${this.shown.length} of ${rows.length} rows`;
    if (this.shown.length === 0) return `No row matches "${this.state.filter.trim()}"`;
    return shared.length > 0 ? `${count} · * parameters that ${listed(shared)} share count once in totals` : count;
  }

  private scrolled(): void {
    this.state.scroll = this.grid.element.scrollTop;
    clearTimeout(this.rested);
    this.rested = setTimeout(() => this.host.remember(this.state), REST_MS);
  }

  private pressed(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.target instanceof HTMLElement) || event.target.closest('tbody') === null) return;
    const wanted = wish(event.key, this.shown, this.state.selected, this.grid.page);
    if (wanted === undefined) return;
    event.preventDefault();
    if ('goTo' in wanted) return this.host.post({ type: 'goto', id: wanted.goTo, focus: true });
    if ('toggle' in wanted) this.toggle(wanted.toggle);
    else this.select(wanted.select);
    this.grid.focus();
  }

  /** Ctrl+F and "/" go to the filter, Ctrl+C copies the rows. */
  private find(event: KeyboardEvent): void {
    const command = event.ctrlKey || event.metaKey;
    const typing = event.target instanceof HTMLInputElement;
    if ((command && event.key === 'f') || (event.key === '/' && !typing)) {
      event.preventDefault();
      this.bar.focus();
    } else if (command && event.key === 'c' && !typing && `${getSelection()}` === '') {
      this.host.post({ type: 'copy', text: asTsv(this.shown, this.columns), rows: this.shown.length });
    }
  }
}

function listed(names: string[]): string {
  const [some, more] = [names.slice(0, 3), names.length - 3];
  return more > 0 ? `${some.join(', ')} and ${more} more` : `${some.slice(0, -1).join(', ')} and ${some.at(-1)}`;
}

new Page();
