/** The page: the present graph, its open modules, and the user's actions. */
import { element } from '../../webview/page/elements';
import { Host } from '../../webview/page/host';
import { Mode, scaleOf } from '../colours';
import { all, initial, isOpen, shown as shownBoxes, visible } from '../expansion';
import { flowOf } from '../flow';
import { Placed, View, layoutInput, placed } from '../layout';
import { Choices, FromPage, Graph, ToPage, USUAL } from '../messages';
import { matches } from '../search';
import { resultText } from '../texts';
import { Thickness, thicknessOf } from '../thickness';
import { Box, Tree, around, buildTree } from '../tree';
import { weightsOf } from '../weights';
import { glide, positions } from './animation';
import { Camera } from './camera';
import { Drawing } from './drawing';
import { KeyActions, pressed } from './keys';
import { Layouter } from './layouter';
import { legendOf } from './legend';
import { Measure } from './measure';
import { Minimap } from './minimap';
import { pngText, svgText } from './picture';
import { Progress } from './progress';
import { State } from './state';
import { Actions, Toolbar } from './toolbar';
import { WeightsPane } from './weights';

const WAITING = 'Waiting for the graph…';

/** A graph, and everything derived from it alone. */
interface Shown {
  graph: Graph;
  tree: Tree;
  index: Map<number, number>;
  thickness: Thickness;
}

export class App {
  private readonly host = new Host<ToPage, FromPage, State>();
  private readonly drawing = new Drawing();
  private readonly notice = element('div', { class: 'notice', role: 'status' }, WAITING);
  private readonly legend = element('aside', { class: 'legend', 'aria-label': 'Legend' });
  private readonly pane = new WeightsPane(() => this.drawing.surface.focus());
  private readonly progress = new Progress(() => this.stop());
  private readonly minimap = new Minimap(this.drawing.surface, () => this.camera);
  private readonly toolbar: Toolbar;
  private readonly camera: Camera;
  private readonly measure = new Measure((tensor) => this.tensorText(tensor));
  private layouter: Layouter | undefined;
  private shown: Shown | undefined;
  private places: Placed | undefined;
  /** The graph and the open modules of the present drawing. */
  private drawn: { shown: Shown; open: Set<string> } | undefined;
  private layouts = 0;
  private choices: Choices = USUAL;
  private open = new Set<string>();
  private selected: string | undefined;
  private cursor: number[] = [];
  private mode: Mode = 'family';
  private found: { boxes: Box[]; at: number } = { boxes: [], at: -1 };

  constructor() {
    this.toolbar = new Toolbar(this.actions());
    this.camera = new Camera(this.drawing.surface, this.drawing.moved, (view) => this.viewed(view));
    const stage = element('main', { class: 'stage' }, this.drawing.surface, this.minimap.root, this.progress.root);
    document.body.append(this.toolbar.root, this.notice, stage, this.pane.root, this.legend);
    this.choose(USUAL);
    this.listen();
    this.host.connect((message) => void this.receive(message));
  }

  private async receive(message: ToPage): Promise<void> {
    if (message.type === 'layout') this.layouter ??= new Layouter(message.source);
    else if (message.type === 'graph') await this.take(message.graph);
    else if (message.type === 'cursor') this.follow(message.rows, message.moved);
    else if (message.type === 'show') await this.showScope(message.scope);
    else if (message.type === 'choices') this.choose(message.choices);
    else if (message.type === 'weights') this.takeWeights(message);
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
    this.shown = { graph, tree, index, thickness: thicknessOf(graph) };
    if (first) this.open = kept === undefined ? initial(tree) : new Set(kept.open.filter((id) => tree.byId.has(id)));
    if (kept !== undefined) [this.selected, this.mode] = [kept.selected, kept.mode];
    this.toolbar.mode(this.mode);
    const notice = graph.stale ? 'The file has changed, and MASE could not trace its present text. This is the graph of the previous text.' : '';
    if (!first) this.notice.textContent = notice;
    await this.lay(anchor, kept?.view, started);
    if (this.notice.textContent === WAITING) this.notice.textContent = notice;
    this.search(this.query);
    // A pass or a save may have changed them.
    if (this.pane.of !== undefined) this.host.post({ type: 'weights', of: this.pane.of });
  }

  /** Lay out and draw the graph; the anchor keeps its place on the screen. False if it was stopped, or another one began. */
  private async lay(anchor?: string, view?: View, started = performance.now()): Promise<boolean> {
    const { shown, layouter } = this;
    if (shown === undefined || layouter === undefined) return false;
    const [number, open] = [++this.layouts, new Set(this.open)];
    this.progress.begin([...shownBoxes(shown.tree.root, open)].length);
    const flow = flowOf(shown.tree, open, shown.graph.columns.inputs, shown.index);
    const answer = await layouter.layout(layoutInput(shown.tree, open, flow, this.measure));
    if (number === this.layouts) this.progress.end();
    if (answer === undefined) return false;
    this.drawn = { shown, open };
    this.draw(placed(answer, flow), anchor, view);
    const boxes = this.places?.boxes.size ?? 0;
    requestAnimationFrame(() => this.host.post({ type: 'painted', boxes, milliseconds: performance.now() - started }));
    return true;
  }

  /** Stop the layout: the drawing stays as it is; a graph that was not drawn yet is drawn with few open modules. */
  private stop(): void {
    if (this.shown === undefined) return;
    this.layouts++;
    this.layouter?.stop();
    this.progress.end();
    if (this.drawn?.shown === this.shown) {
      this.open = new Set(this.drawn.open);
      this.notice.textContent = 'The layout was stopped: the same modules are open as before.';
    } else {
      this.open = initial(this.shown.tree);
      this.notice.textContent = 'The layout was stopped: some modules were closed, so that the graph is smaller.';
      void this.lay();
    }
  }

  private draw(places: Placed, anchor: string | undefined, view: View | undefined): void {
    const { shown } = this;
    if (shown === undefined) return;
    const [before, old] = [this.places, this.camera.now];
    const from = positions(before, old);
    this.places = places;
    const scale = scaleOf(this.mode, shown.graph);
    this.drawing.show({ ...shown, open: this.open, places, scale, measure: this.measure, tensorText: (tensor) => this.tensorText(tensor), thickness: this.thickness });
    this.minimap.show(places, shown.tree, this.open, scale);
    this.legend.replaceChildren(...legendOf(this.mode, scale, this.thickness));
    const [was, is] = [anchor === undefined ? undefined : before?.boxes.get(anchor), anchor === undefined ? undefined : places.boxes.get(anchor)];
    if (was !== undefined && is !== undefined) this.camera.set({ ...old, x: old.x + (was.x - is.x) * old.scale, y: old.y + (was.y - is.y) * old.scale });
    else if (view !== undefined) this.camera.set(view);
    else if (before === undefined) this.camera.fit(places.size, true);
    this.restore();
    glide(this.drawing, from, positions(places, this.camera.now), this.camera.now.scale);
  }

  /** Mark the boxes again after they were redrawn. */
  private restore(): void {
    this.focus(this.selected);
    this.markCursor();
    this.markFound();
    this.remember();
  }

  private focus(id: string | undefined): void {
    this.drawing.focus(id);
    this.toolbar.hasWeights(this.weightsPath !== undefined);
  }

  private viewed(view: View): void {
    this.minimap.follow(view);
    this.remember();
  }

  private get thickness(): Thickness | undefined {
    return this.choices.thick ? this.shown?.thickness : undefined;
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
    this.focus(box.id);
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
    this.focus(box.id);
    this.revealBox(box);
    this.drawing.surface.focus();
  }

  private setAll(open: Set<string>, text: string): void {
    this.open = open;
    this.notice.textContent = text;
    const anchor = this.selected;
    void this.lay(anchor).then((laid) => laid && this.places && this.camera.fit(this.places.size, true));
  }

  // Choices, and weights.

  /** `tell`: the user made them here, so that the extension keeps them. */
  private choose(choices: Choices, tell = false): void {
    this.choices = choices;
    this.toolbar.choices(choices);
    this.minimap.want(choices.minimap);
    this.drawing.thicken(this.thickness);
    if (this.shown !== undefined) this.legend.replaceChildren(...legendOf(this.mode, scaleOf(this.mode, this.shown.graph), this.thickness));
    if (tell) this.host.post({ type: 'choose', choices });
  }

  /** The path of the weights of the selection, or of the whole model without one. */
  private get weightsPath(): string | undefined {
    return this.shown && weightsOf(this.box(this.selected) ?? this.shown.tree.root, this.shown.graph);
  }

  private requestWeights(): void {
    const of = this.weightsPath;
    if (of === undefined || this.shown === undefined) return;
    this.pane.wait(of, this.shown.graph.model);
    this.host.post({ type: 'weights', of });
  }

  private takeWeights(message: Extract<ToPage, { type: 'weights' }>): void {
    if (message.of !== this.pane.of) return;
    if ('problem' in message) this.pane.tell(message.problem);
    else this.pane.show(message.statistics);
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
    addEventListener('resize', () => this.viewed(this.camera.now));
    addEventListener('keydown', ({ key }) => key === 'Escape' && this.progress.isShown && this.stop());
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
    weights: () => this.requestWeights(),
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
      weights: () => this.requestWeights(),
      minimap: () => this.choose({ ...this.choices, minimap: !this.choices.minimap }, true),
      thick: () => this.choose({ ...this.choices, thick: !this.choices.thick }, true),
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
    this.minimap.paint(scale);
    this.legend.replaceChildren(...legendOf(mode, scale, this.thickness));
    this.remember();
  }

  private expandAll(): void {
    if (this.shown !== undefined) this.setAll(all(this.shown.tree), '');
  }

  private async export(format: 'svg' | 'png'): Promise<void> {
    if (this.places === undefined) return;
    for (const mark of ['cursor', 'found', 'selected']) this.drawing.mark(mark, []);
    const text = svgText(this.drawing.surface, this.places.size);
    this.restore();
    this.host.post({ type: 'export', format, data: format === 'svg' ? text : await pngText(text, this.places.size) });
  }
}
