/** The page: the present graph, its open modules, and the user's actions. */
import { element } from '../../webview/page/elements';
import { Host } from '../../webview/page/host';
import { Mode, scaleOf } from '../colours';
import { MOST_BOXES, all, initial, isOpen, visible } from '../expansion';
import { flowOf } from '../flow';
import { Placed, layoutInput, placed } from '../layout';
import { FromPage, Graph, ToPage } from '../messages';
import { matches } from '../search';
import { resultText } from '../texts';
import { Box, Tree, around, buildTree } from '../tree';
import { glide, positions } from './animation';
import { Camera, View } from './camera';
import { Drawing } from './drawing';
import { KeyActions, pressed } from './keys';
import { Layouter } from './layouter';
import { legendOf } from './legend';
import { Measure } from './measure';
import { pngText, svgText } from './picture';
import { State } from './state';
import { Actions, Toolbar } from './toolbar';

/** A graph, and everything derived from it alone. */
interface Shown {
  graph: Graph;
  tree: Tree;
  index: Map<number, number>;
}

export class App {
  private readonly host = new Host<ToPage, FromPage, State>();
  private readonly drawing = new Drawing();
  private readonly notice = element('div', { class: 'notice', role: 'status' }, 'Waiting for the graph…');
  private readonly legend = element('aside', { class: 'legend', 'aria-label': 'Legend' });
  private readonly toolbar: Toolbar;
  private readonly camera: Camera;
  private readonly measure = new Measure((tensor) => this.tensorText(tensor));
  private layouter: Layouter | undefined;
  private shown: Shown | undefined;
  private places: Placed | undefined;
  private open = new Set<string>();
  private selected: string | undefined;
  private cursor: number[] = [];
  private mode: Mode = 'family';
  private found: { boxes: Box[]; at: number } = { boxes: [], at: -1 };

  constructor() {
    this.toolbar = new Toolbar(this.actions());
    this.camera = new Camera(this.drawing.surface, this.drawing.moved, () => this.remember());
    const stage = element('main', { class: 'stage' }, this.drawing.surface);
    document.body.append(this.toolbar.root, this.notice, stage, this.legend);
    this.listen();
    this.host.connect((message) => void this.receive(message));
  }

  private async receive(message: ToPage): Promise<void> {
    if (message.type === 'layout') this.layouter ??= new Layouter(message.source);
    else if (message.type === 'graph') await this.take(message.graph);
    else if (message.type === 'cursor') this.follow(message.rows, message.moved);
    else if (message.type === 'show') await this.showScope(message.scope);
    else this.notice.textContent = message.text;
  }

  /** Show a new graph; if it is of the same model, keep as much as possible unchanged. */
  private async take(graph: Graph): Promise<void> {
    const started = performance.now();
    const tree = buildTree(graph);
    const index = new Map(graph.columns.row.map((row, at) => [row, at]));
    const first = this.shown === undefined;
    const kept = first ? this.host.remembered : undefined;
    const anchor = first ? undefined : this.anchor(tree);
    this.shown = { graph, tree, index };
    if (first) this.open = kept === undefined ? initial(tree) : new Set(kept.open.filter((id) => tree.byId.has(id)));
    if (kept !== undefined) [this.selected, this.mode] = [kept.selected, kept.mode];
    this.toolbar.mode(this.mode);
    const notice = graph.stale ? 'This is the graph of an older text: the present one cannot be traced.' : '';
    if (!first) this.notice.textContent = notice;
    await this.lay(anchor, kept?.view, started);
    if (first) this.notice.textContent = notice;
    this.search(this.query);
  }

  /** Lay out and draw the graph; the anchor keeps its place on the screen. */
  private async lay(anchor?: string, view?: View, started = performance.now()): Promise<void> {
    const { shown, layouter } = this;
    if (shown === undefined || layouter === undefined) return;
    const flow = flowOf(shown.tree, this.open, shown.graph.columns.inputs, shown.index);
    const answer = await layouter.layout(layoutInput(shown.tree, this.open, flow, this.measure));
    if (answer === undefined) return;
    this.draw(placed(answer, flow), anchor, view);
    const boxes = this.places?.boxes.size ?? 0;
    requestAnimationFrame(() => this.host.post({ type: 'painted', boxes, milliseconds: performance.now() - started }));
  }

  private draw(places: Placed, anchor: string | undefined, view: View | undefined): void {
    const { shown } = this;
    if (shown === undefined) return;
    const [before, old] = [this.places, this.camera.now];
    const from = positions(before, old);
    this.places = places;
    const scale = scaleOf(this.mode, shown.graph);
    this.drawing.show({ ...shown, open: this.open, places, scale, measure: this.measure, tensorText: (tensor) => this.tensorText(tensor) });
    this.legend.replaceChildren(...legendOf(this.mode, scale));
    const [was, is] = [anchor === undefined ? undefined : before?.boxes.get(anchor), anchor === undefined ? undefined : places.boxes.get(anchor)];
    if (was !== undefined && is !== undefined) this.camera.set({ ...old, x: old.x + (was.x - is.x) * old.scale, y: old.y + (was.y - is.y) * old.scale });
    else if (view !== undefined) this.camera.set(view);
    else if (before === undefined) this.camera.fit(places.size, true);
    this.restore();
    glide(this.drawing, from, positions(places, this.camera.now), this.camera.now.scale);
  }

  /** Mark the boxes again after they were redrawn. */
  private restore(): void {
    this.drawing.focus(this.selected);
    this.markCursor();
    this.markFound();
    this.remember();
  }

  private tensorText(tensor: number): string {
    return this.shown === undefined ? '' : resultText(this.shown.graph, tensor);
  }

  /** Among the boxes that a new tree also has, the selected one if it is visible, else the one nearest to the middle. */
  private anchor(tree: Tree): string | undefined {
    const { x, y, scale } = this.camera.now;
    const { x: middle, y: height } = this.camera.middle;
    const there = [...(this.places?.boxes ?? [])].filter(([id]) => tree.byId.has(id) && !this.open.has(id));
    const distance = (place: { x: number; y: number }) => Math.hypot(place.x * scale + x - middle, place.y * scale + y - height);
    const [nearest] = there.sort(([one, first], [other, second]) => Number(other === this.selected) - Number(one === this.selected) || distance(first) - distance(second));
    return nearest?.[0];
  }

  private box(id: string | undefined): Box | undefined {
    return id === undefined ? undefined : this.shown?.tree.byId.get(id);
  }

  private remember(): void {
    if (this.places === undefined || this.shown === undefined) return;
    const { path, model } = this.shown.graph;
    this.host.remember({ path, model, open: [...this.open], selected: this.selected, view: this.camera.now, mode: this.mode });
  }

  // The user's actions.

  private select(box: Box): void {
    this.selected = box.id;
    this.drawing.focus(box.id);
    this.revealBox(box);
    if (box.kind === 'operation') this.go(box, false);
    this.remember();
  }

  private go(box: Box, focus: boolean): void {
    const row = this.shown?.graph.columns.row[box.first];
    if (row !== undefined) this.host.post({ type: 'go', row, focus });
  }

  private toggle(box: Box): void {
    if (box.kind !== 'scope') return;
    if (!this.open.delete(box.id)) this.open.add(box.id);
    this.selected = box.id;
    void this.lay(box.id);
  }

  private revealBox(box: Box): void {
    const place = this.places?.boxes.get(box.id);
    if (place !== undefined) this.camera.reveal(isOpen(box, this.open) ? { ...place, height: 30 } : place);
  }

  /** Open the scopes around a box, so that it is shown. */
  private async uncover(box: Box): Promise<void> {
    const closed = [...around(box)].filter((scope) => !this.open.has(scope.id));
    if (closed.length === 0) return;
    closed.forEach((scope) => this.open.add(scope.id));
    await this.lay(closed.at(-1)?.id);
  }

  private async showScope(path: string): Promise<void> {
    const box = this.box(path);
    if (box === undefined || box.kind !== 'scope' || box === this.shown?.tree.root) return;
    await this.uncover(box);
    if (!this.open.has(box.id)) {
      this.open.add(box.id);
      await this.lay(box.id);
    }
    this.selected = box.id;
    this.drawing.focus(box.id);
    this.revealBox(box);
    this.drawing.surface.focus();
  }

  private setAll(open: Set<string>, text: string): void {
    this.open = open;
    this.notice.textContent = text;
    const anchor = this.selected;
    void this.lay(anchor).then(() => this.places && this.camera.fit(this.places.size, true));
  }

  // The cursor of the editor.

  private follow(rows: number[], moved: boolean): void {
    this.cursor = rows;
    const [first] = this.markCursor();
    if (moved && first !== undefined && !this.drawing.surface.matches(':focus')) this.revealBox(first);
  }

  /** The boxes at the editor's cursor, or the closed scopes around them. */
  private markCursor(): Box[] {
    const { shown } = this;
    if (shown === undefined) return [];
    const operations = this.cursor.map((row) => shown.tree.operations[shown.index.get(row) ?? -1]).filter((each) => each !== undefined);
    const boxes = [...new Set(operations.map((each) => visible(each, this.open)))];
    this.drawing.mark('cursor', boxes.map(({ id }) => id));
    return boxes;
  }

  // Search.

  private query = '';

  private search(query: string): void {
    const { shown } = this;
    if (shown === undefined) return;
    const last = this.found.boxes[this.found.at]?.id;
    this.query = query;
    const boxes = matches(shown.tree, shown.graph, query);
    this.found = { boxes, at: boxes.findIndex(({ id }) => id === last) };
    this.markFound();
    this.tellFound();
  }

  private step(by: number): void {
    const { boxes, at } = this.found;
    if (boxes.length === 0) return;
    this.found.at = (at < 0 && by < 0 ? boxes.length - 1 : at + by + boxes.length) % boxes.length;
    this.tellFound();
    const box = boxes[this.found.at];
    if (box !== undefined) void this.uncover(box).then(() => this.select(box));
  }

  private tellFound(): void {
    const { boxes, at } = this.found;
    const text = at >= 0 ? `${at + 1} of ${boxes.length}` : `${boxes.length} found`;
    this.toolbar.found(this.query.trim() === '' ? '' : text);
  }

  private markFound(): void {
    this.drawing.mark('found', this.found.boxes.map((box) => visible(box, this.open).id));
  }

  // Wiring.

  private listen(): void {
    const { surface } = this.drawing;
    surface.addEventListener('click', (event) => this.clicked(event));
    surface.addEventListener('dblclick', (event) => this.clicked(event, true));
    surface.addEventListener('keydown', (event) => this.key(event));
    addEventListener('resize', () => this.remember());
  }

  private clicked({ target }: MouseEvent, twice = false): void {
    if (!(target instanceof Element) || target.closest('[data-press]') === null) return;
    const box = this.box(target.closest('.box')?.getAttribute('data-id') ?? undefined);
    this.drawing.surface.focus({ preventScroll: true });
    if (box === undefined) return;
    if (twice) return box.kind === 'operation' ? this.go(box, true) : undefined;
    if (box.kind === 'scope') this.toggle(box);
    else this.select(box);
  }

  private key(event: KeyboardEvent): void {
    const { shown } = this;
    if (shown === undefined) return;
    if (pressed(event, shown.tree, this.open, this.box(this.selected), this.keys)) event.preventDefault();
  }

  private readonly keys: KeyActions = {
    select: (box) => this.select(box),
    toggle: (box) => this.toggle(box),
    go: (box) => this.go(box, true),
    search: () => this.toolbar.focusSearch(),
    zoomIn: () => this.camera.zoom(1.25),
    zoomOut: () => this.camera.zoom(0.8),
    fit: () => this.places && this.camera.fit(this.places.size),
    actual: () => this.camera.zoom(1 / this.camera.now.scale),
    pan: (x, y) => this.camera.pan(x, y),
  };

  private actions(): Actions {
    return {
      search: (query) => this.search(query),
      next: () => this.step(1),
      previous: () => this.step(-1),
      leave: () => this.drawing.surface.focus(),
      colour: (mode) => this.colour(mode),
      expandAll: () => this.expandAll(),
      collapseAll: () => this.shown && this.setAll(new Set([this.shown.tree.root.id]), ''),
      zoomIn: () => this.keys.zoomIn(),
      zoomOut: () => this.keys.zoomOut(),
      fit: () => this.keys.fit(),
      costs: () => this.host.post({ type: 'costs' }),
      exportSvg: () => void this.export('svg'),
      exportPng: () => void this.export('png'),
    };
  }

  private colour(mode: Mode): void {
    if (this.shown === undefined) return;
    this.mode = mode;
    const scale = scaleOf(mode, this.shown.graph);
    this.drawing.paint(scale);
    this.legend.replaceChildren(...legendOf(mode, scale));
    this.remember();
  }

  private expandAll(): void {
    if (this.shown === undefined) return;
    const { open, complete } = all(this.shown.tree);
    this.setAll(open, complete ? '' : `Modules are open as far as ${MOST_BOXES.toLocaleString('en')} boxes, the outer ones first; open others one by one.`);
  }

  private async export(format: 'svg' | 'png'): Promise<void> {
    if (this.places === undefined) return;
    for (const mark of ['cursor', 'found', 'selected']) this.drawing.mark(mark, []);
    const text = svgText(this.drawing.surface, this.places.size);
    this.restore();
    this.host.post({ type: 'export', format, data: format === 'svg' ? text : await pngText(text, this.places.size) });
  }
}
