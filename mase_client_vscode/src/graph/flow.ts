/**
 * The edges between the shown boxes.
 *
 * An edge that leaves or enters open scopes is cut at their borders and gets ports there: so each scope has its own
 * layout, and its border shows its inputs and outputs.
 */
import { Expansion, isOpen, visible } from './expansion';
import { Box, Scope, Tree, around } from './tree';

/** A box, or a port of an open scope: the tensor of the operation `tensor`, going in or out. */
export interface End {
  box: Box;
  port: 'in' | 'out' | undefined;
}

/** A part of an edge within one scope. `tensor`: the index of the operation that computes it. */
export interface Segment {
  id: string;
  within: Scope;
  from: End;
  to: End;
  tensor: number;
  /** Does it carry the tensor's label?  One segment of each tensor does, where the tensor is computed. */
  labelled: boolean;
}

export interface Flow {
  segments: Segment[];
  /** By the id of the scope: the tensors at its border. */
  ports: Map<string, { in: Set<number>; out: Set<number> }>;
}

export function flowOf(tree: Tree, open: Expansion, inputs: number[][], index: Map<number, number>): Flow {
  const found = new Finder(tree, open);
  inputs.forEach((rows, to) => {
    for (const row of rows) {
      const from = index.get(row);
      if (from !== undefined) found.edge(from, to);
    }
  });
  return { segments: [...found.segments.values()], ports: found.ports };
}

export function endId({ box, port }: End, tensor: number): string {
  return port === undefined ? box.id : `${box.id}|${port}|${tensor}`;
}

class Finder {
  readonly segments = new Map<string, Segment>();
  readonly ports: Flow['ports'] = new Map();
  private readonly told = new Set<number>();

  constructor(
    private readonly tree: Tree,
    private readonly open: Expansion,
  ) {}

  edge(tensor: number, to: number): void {
    const [start, goal] = [this.shown(tensor), this.shown(to)];
    if (start === undefined || goal === undefined || start === goal) return;
    const [outward, inward] = [[...around(start)], [...around(goal)]];
    const common = outward.find((scope) => inward.includes(scope));
    if (common === undefined) return;
    let from: End = { box: start, port: undefined };
    for (const scope of outward) {
      if (scope === common) break;
      from = this.add(scope, from, { box: scope, port: 'out' }, tensor);
    }
    for (const scope of inward.slice(0, inward.indexOf(common)).reverse()) {
      from = this.add(scope.parent ?? common, from, { box: scope, port: 'in' }, tensor);
    }
    this.add(goal.parent ?? common, from, { box: goal, port: undefined }, tensor);
  }

  private shown(index: number): Box | undefined {
    const operation = this.tree.operations[index];
    return operation && visible(operation, this.open);
  }

  private add(within: Scope, from: End, to: End, tensor: number): End {
    const id = `${tensor}:${endId(from, tensor)}>${endId(to, tensor)}`;
    if (!this.segments.has(id)) {
      this.segments.set(id, { id, within, from, to, tensor, labelled: !this.told.has(tensor) });
      this.told.add(tensor);
      for (const { box, port } of [from, to]) if (port !== undefined && isOpen(box, this.open)) this.portsOf(box)[port].add(tensor);
    }
    return to;
  }

  private portsOf(scope: Scope): { in: Set<number>; out: Set<number> } {
    const known = this.ports.get(scope.id) ?? { in: new Set(), out: new Set() };
    this.ports.set(scope.id, known);
    return known;
  }
}
