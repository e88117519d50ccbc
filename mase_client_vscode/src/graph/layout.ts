/** The input of the layout from the shown boxes, and its answer as places. */
import type { ElkExtendedEdge, ElkNode, ElkPort } from 'elkjs/lib/elk-api';
import { Expansion, isOpen } from './expansion';
import { Flow, Segment, endId } from './flow';
import { Box, Scope, Tree } from './tree';

export interface Size {
  width: number;
  height: number;
}

export interface Place extends Size {
  x: number;
  y: number;
}

/** The place of the drawing's corner in the view, and its scale. */
export interface View {
  x: number;
  y: number;
  scale: number;
}

export interface Line {
  segment: Segment;
  points: { x: number; y: number }[];
  label: Place | undefined;
}

/** The places of everything, in one system of coordinates. */
export interface Placed {
  size: Size;
  boxes: Map<string, Place>;
  lines: Line[];
}

/** The sizes of texts, for the layout. */
export interface Sizes {
  box(box: Box, open: boolean): Size;
  label(tensor: number): Size;
}

/** In an open scope, the space above its members is for its title. */
export const TITLE = 30;
const PADDING = 14;
const OPTIONS = {
  'elk.algorithm': 'layered',
  'elk.direction': 'DOWN',
  'elk.edgeRouting': 'ORTHOGONAL',
  'elk.hierarchyHandling': 'SEPARATE_CHILDREN',
  'elk.layered.considerModelOrder.strategy': 'NODES_AND_EDGES',
  'elk.layered.nodePlacement.strategy': 'BRANDES_KOEPF',
  'elk.layered.nodePlacement.bk.fixedAlignment': 'BALANCED',
  'elk.layered.spacing.nodeNodeBetweenLayers': '14',
  'elk.layered.spacing.edgeNodeBetweenLayers': '10',
  'elk.layered.spacing.edgeEdgeBetweenLayers': '8',
  'elk.layered.edgeLabels.centerLabelPlacementStrategy': 'TAIL_LAYER',
  'elk.contentAlignment': '[H_CENTER, V_TOP]',
  'elk.spacing.nodeNode': '24',
  'elk.spacing.edgeNode': '14',
  'elk.spacing.edgeEdge': '8',
  'elk.spacing.edgeLabel': '4',
  'elk.padding': `[top=${TITLE + 12},left=${PADDING},bottom=${PADDING + 4},right=${PADDING}]`,
};

export function layoutInput(tree: Tree, open: Expansion, flow: Flow, sizes: Sizes): ElkNode {
  const within = new Map<string, Segment[]>();
  for (const segment of flow.segments) {
    const known = within.get(segment.within.id);
    if (known === undefined) within.set(segment.within.id, [segment]);
    else known.push(segment);
  }
  const edge = ({ id, from, to, tensor, labelled }: Segment): ElkExtendedEdge => ({
    id,
    sources: [endId(from, tensor)],
    targets: [endId(to, tensor)],
    ...(labelled ? { labels: [{ id: `${id}#`, text: ' ', ...sizes.label(tensor) }] } : {}),
  });
  const inner = (scope: Scope): ElkNode[] => scope.members.map((member) => (isOpen(member, open) ? around(member) : { id: member.id, ...sizes.box(member, false) }));
  const around = (scope: Scope): ElkNode => {
    const { width, height } = sizes.box(scope, true);
    return {
      id: scope.id,
      layoutOptions: { ...OPTIONS, 'elk.portConstraints': 'FIXED_SIDE', 'elk.nodeSize.constraints': '[PORTS, MINIMUM_SIZE]', 'elk.nodeSize.minimum': `(${width},${height})` },
      ports: portsOf(scope, flow),
      children: inner(scope),
      edges: (within.get(scope.id) ?? []).map(edge),
    };
  };
  const edges = (within.get(tree.root.id) ?? []).map(edge);
  return { id: 'root', layoutOptions: { ...OPTIONS, 'elk.padding': '[top=16,left=16,bottom=16,right=16]' }, children: inner(tree.root), edges };
}

function portsOf(scope: Scope, flow: Flow): ElkPort[] {
  const found = flow.ports.get(scope.id);
  const made = (port: 'in' | 'out', side: string) =>
    [...(found?.[port] ?? [])].map((tensor) => ({ id: endId({ box: scope, port }, tensor), width: 0, height: 0, layoutOptions: { 'elk.port.side': side } }));
  return [...made('in', 'NORTH'), ...made('out', 'SOUTH')];
}

/** The places in the answer, where those of members are relative to their scope. */
export function placed(answer: ElkNode, flow: Flow): Placed {
  const boxes = new Map<string, Place>();
  const lines: Line[] = [];
  const segments = new Map(flow.segments.map((segment) => [segment.id, segment]));
  const visit = (node: ElkNode, left: number, top: number): void => {
    for (const edge of node.edges ?? []) {
      const segment = segments.get(edge.id);
      if (segment !== undefined) lines.push(lineOf(segment, edge, left, top));
    }
    for (const child of node.children ?? []) {
      const place = { x: left + (child.x ?? 0), y: top + (child.y ?? 0), width: child.width ?? 0, height: child.height ?? 0 };
      boxes.set(child.id, place);
      visit(child, place.x, place.y);
    }
  };
  visit(answer, 0, 0);
  return { size: { width: answer.width ?? 0, height: answer.height ?? 0 }, boxes, lines };
}

function lineOf(segment: Segment, edge: ElkExtendedEdge, left: number, top: number): Line {
  const [section] = edge.sections ?? [];
  const points = section === undefined ? [] : [section.startPoint, ...(section.bendPoints ?? []), section.endPoint];
  const [label] = edge.labels ?? [];
  return {
    segment,
    points: points.map(({ x, y }) => ({ x: x + left, y: y + top })),
    label: label && { x: (label.x ?? 0) + left, y: (label.y ?? 0) + top, width: label.width ?? 0, height: label.height ?? 0 },
  };
}
