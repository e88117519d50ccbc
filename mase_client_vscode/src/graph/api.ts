/** The extension's requests about graphs. */
import { Location, Position, Uri } from 'vscode';
import { PassApi } from '../passes/api';
import { presentPlace } from '../places';
import { PassTarget } from '../protocol';
import { NodesAt, WeightStatistics } from 'mase-client/records';
import { Server } from '../server';
import { Graph } from './messages';
import { COLUMNS, GraphPage, joined, sameTrace } from './pages';

/** Rows per request, so that the server has time for other requests in between. */
const AT_ONCE = 2000;

export class GraphApi {
  readonly passes: PassApi;

  constructor(server: Server) {
    this.passes = new PassApi(server);
  }

  /** The whole graph of a model, from a single trace. */
  async graph({ path, model }: PassTarget): Promise<Graph> {
    const page = (start: number): Promise<GraphPage> => this.passes.graph({ path, model, start, count: AT_ONCE, columns: COLUMNS }) as Promise<GraphPage>;
    let pages: [GraphPage, ...GraphPage[]] = [await page(0)];
    for (let next = pages[0].next; next !== null; ) {
      const more = await page(next);
      if (sameTrace(pages[0], more)) pages.push(more);
      else pages = [await page(0)];
      next = pages.at(-1)?.next ?? null;
    }
    const { steps } = await this.passes.pipeline({ path, model });
    return joined(pages, steps ?? []);
  }

  /** Statistics of the weights of a module or a parameter. */
  weights({ path, model }: PassTarget, of: string): Promise<WeightStatistics> {
    return this.passes.weightStatistics({ path, model, of });
  }

  /** Does a file have known problems? */
  async hasErrors(path: string): Promise<boolean> {
    const problems = await this.passes.problems({ path });
    return problems.some(({ severity }) => severity === 'error');
  }

  /** The present place of an operation; undefined if it is unknown or was edited since. */
  async place({ columns, files }: Graph, row: number): Promise<Location | undefined> {
    const at = columns.row.indexOf(row);
    const path = files[columns.file[at] ?? -1]?.path;
    if (path === undefined) return undefined;
    const [line = 0, column = 0, end_line = 0, end_column = 0] = [columns.line[at], columns.column[at], columns.end_line[at], columns.end_column[at]];
    return presentPlace(this.passes, { path, line, column, end_line, end_column });
  }

  /** The rows of a graph at a position; none if the graph is of another text. */
  async rowsAt(graph: Graph, uri: Uri, { line, character }: Position): Promise<number[]> {
    const { path, model } = graph;
    const asked = { uri: uri.toString(), position: { line, character }, path, model };
    const told = await this.passes.request<NodesAt>('mase/nodesAt', asked);
    return told.sha256 === graph.sha256 ? told.rows : [];
  }
}
