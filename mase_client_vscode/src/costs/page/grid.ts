/** The rows on the screen: only visible rows have elements, whatever the model's size. */
import { element } from '../../webview/page/elements';
import { Column, NAME, textOf } from '../columns';
import { share } from '../../figures';
import { CostRow } from 'mase-client/records';
import { Shown, Sort } from '../tree';

/** Height of a row in pixels, the same as in costs.css. */
const ROW = 22;
/** Rows above and below the visible ones that have elements already. */
const MORE = 10;

/** The content of the screen. `current`: rows at the editor's cursor.  `selected`: the row that the keys move. */
export interface Picture {
  shown: Shown[];
  columns: Column[];
  whole: CostRow;
  sort: Sort | null;
  flat: boolean;
  current: ReadonlySet<string>;
  selected: string;
}

export interface Actions {
  sortBy(column: string): void;
  toggle(id: string): void;
  select(id: string): void;
  goTo(id: string, focus: boolean): void;
}

export class Grid {
  private readonly widths = element('colgroup');
  private readonly titles = element('tr', { role: 'row', 'aria-rowindex': 1 });
  private readonly body = element('tbody', { role: 'rowgroup' });
  private readonly table = element(
    'table',
    { role: 'treegrid', 'aria-label': 'Costs' },
    this.widths,
    element('thead', { role: 'rowgroup' }, this.titles),
    this.body,
  );
  readonly element = element('div', { class: 'scroll' }, this.table);
  private picture: Picture | undefined;

  constructor(private readonly actions: Actions) {
    this.element.addEventListener('scroll', () => this.drawRows());
    new ResizeObserver(() => this.drawRows()).observe(this.element);
    this.body.addEventListener('click', (event) => this.clicked(event));
    this.body.addEventListener('dblclick', (event) => this.at(event.target, (id) => this.actions.goTo(id, true)));
  }

  draw(picture: Picture): void {
    this.picture = picture;
    this.widths.replaceChildren(...picture.columns.map(({ width }) => sized(element('col'), width)));
    this.table.setAttribute('aria-rowcount', `${picture.shown.length + 1}`);
    this.table.setAttribute('aria-colcount', `${picture.columns.length}`);
    sized(this.table, picture.columns.reduce((sum, { width }) => sum + width, 0));
    this.drawTitles(picture);
    this.drawRows();
  }

  /** Scroll to a row, unless it is visible. */
  reveal(id: string): void {
    const number = this.picture?.shown.findIndex(({ row }) => row.id === id) ?? -1;
    if (number < 0) return;
    const [top, room] = [number * ROW, this.element.clientHeight - 2 * ROW];
    const { scrollTop } = this.element;
    if (top < scrollTop || top > scrollTop + room) this.element.scrollTop = Math.max(0, top - room / 2);
    this.drawRows();
  }

  /** Give the selected row the keyboard focus. */
  focus(): void {
    if (this.picture !== undefined) this.reveal(this.picture.selected);
    this.body.querySelector<HTMLElement>('tr[tabindex="0"]')?.focus({ preventScroll: true });
  }

  get hasFocus(): boolean {
    return this.body.contains(document.activeElement);
  }

  /** The number of visible rows. */
  get page(): number {
    return Math.max(1, Math.floor(this.element.clientHeight / ROW) - 2);
  }

  private drawTitles({ columns, sort }: Picture): void {
    const made = columns.map((column) => {
      const order = sort?.column !== column.id ? 'none' : sort.descending ? 'descending' : 'ascending';
      const button = element('button', { title: column.help }, column.title);
      button.addEventListener('click', () => this.actions.sortBy(column.id));
      return element('th', { role: 'columnheader', scope: 'col', 'aria-sort': order, class: column.id === NAME ? 'name' : 'figure' }, button);
    });
    const focused = [...this.titles.children].findIndex((title) => title.contains(document.activeElement));
    this.titles.replaceChildren(...made);
    made[focused]?.querySelector('button')?.focus();
  }

  private drawRows(): void {
    const { picture } = this;
    if (picture === undefined) return;
    const focused = this.hasFocus;
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - MORE);
    const last = Math.min(picture.shown.length, first + Math.ceil(this.element.clientHeight / ROW) + 2 * MORE);
    const rows = picture.shown.slice(first, last).map((each, index) => rowElement(each, first + index, picture));
    this.body.replaceChildren(room(first), ...rows, room(picture.shown.length - last));
    if (focused) this.body.querySelector<HTMLElement>('tr[tabindex="0"]')?.focus({ preventScroll: true });
  }

  private clicked(event: MouseEvent): void {
    this.at(event.target, (id, target) => {
      if (target.closest('.twistie') !== null) return this.actions.toggle(id);
      this.actions.select(id);
      this.actions.goTo(id, false);
    });
  }

  private at(target: EventTarget | null, run: (id: string, target: Element) => void): void {
    const row = target instanceof Element ? target.closest<HTMLElement>('tr[data-id]') : null;
    if (row !== null && target instanceof Element) run(row.dataset['id'] ?? '', target);
  }
}

function rowElement({ row, level, position, size, open }: Shown, number: number, picture: Picture): HTMLElement {
  const selected = row.id === picture.selected;
  const made = element(
    'tr',
    {
      role: 'row', 'data-id': row.id, class: row.kind, tabindex: selected ? 0 : -1, 'aria-selected': `${selected}`,
      'aria-level': level, 'aria-posinset': position, 'aria-setsize': size, 'aria-rowindex': number + 2,
      'aria-expanded': open === undefined ? undefined : `${open}`,
      'aria-current': picture.current.has(row.id) ? 'true' : undefined,
    },
    ...picture.columns.map((column) => (column.id === NAME ? nameCell(row, level, open, picture) : figureCell(column, row, picture))),
  );
  return made;
}

function nameCell(row: CostRow, level: number, open: boolean | undefined, { flat }: Picture): HTMLElement {
  const twistie = element('span', { class: open === undefined ? 'twistie none' : 'twistie', 'aria-hidden': 'true' });
  const path = flat ? row.id.slice(0, row.id.length - row.name.length).replace(/\/$/, ' ') : '';
  const parts = [path && element('span', { class: 'path' }, path), element('span', { class: 'label' }, row.name)];
  const calls = row.kind === 'operator' && row.nodes > 1 ? `× ${row.nodes}` : row.nodes === 0 && row.kind === 'layer' ? 'did not run' : row.type;
  const cell = element('th', { role: 'rowheader', scope: 'row', class: 'name', title: titleOf(row) }, twistie, ...parts, element('span', { class: 'type' }, calls));
  cell.style.setProperty('--level', `${level - 1}`);
  return cell;
}

/** The tooltip of the name: the whole path, the type, and the modules that share its parameters. */
function titleOf(row: CostRow): string {
  const where = row.id === '' ? row.name : row.id.replace('/', ' · ');
  const shared = row.shared.length > 0 ? [`Shares parameters with ${row.shared.join(', ')}: totals count them once`] : [];
  return [`${where}${row.type ? ` (${row.type})` : ''}`, ...shared].join('\n');
}

function figureCell(column: Column, row: CostRow, { whole }: Picture): HTMLElement {
  const value = column.value(row);
  const all = column.value(whole);
  const cell = element('td', { role: 'gridcell', class: 'figure' }, textOf(column, row));
  if (value === null) return cell;
  const more = [column.more?.(value, row)];
  if (column.adds && typeof value === 'number' && typeof all === 'number' && all > 0) {
    more.push(`${share(value, all)} of ${whole.name}`);
    cell.classList.add('share');
    cell.style.setProperty('--share', `${Math.min(1, value / all)}`);
  }
  if (column.id === 'parameters' && row.shared.length > 0) {
    cell.append(element('span', { class: 'shared', 'aria-label': `shared with ${row.shared.join(', ')}` }, '*'));
    more.push(`shared with ${row.shared.join(', ')}`);
  }
  cell.title = more.filter((text) => text !== undefined).join(' · ');
  return cell;
}

/** A placeholder for rows without elements. */
function room(rows: number): HTMLElement {
  const made = element('tr', { role: 'presentation', class: 'room', 'aria-hidden': 'true' });
  made.style.height = `${rows * ROW}px`;
  return made;
}

function sized<T extends HTMLElement>(made: T, characters: number): T {
  made.style.width = `${characters}ch`;
  return made;
}
