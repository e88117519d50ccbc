/** The texts of a box: on it, in its tooltip and for a screen reader. */
import { inTime, scaled, share } from '../figures';
import { Graph } from './messages';
import { counted, resultText, sqnrText } from './texts';
import { Box } from './tree';

/** A name can be any text: with more letters a box would be wider than the view. */
const LONGEST = 40;

/** The two texts on a box: its operator, and its own name. The tooltip has both in full. */
export function onBox(box: Box): { title: string; beside: string } {
  if (box.kind === 'operation') return { title: cut(box.title), beside: cut(box.name) };
  const title = box.type === '' ? cut(box.name) : `${cut(box.name)}: ${cut(box.type)}`;
  return { title, beside: `${box.end - box.first}` };
}

function cut(name: string): string {
  const letters = [...name];
  return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join('')}…` : name;
}

export function tooltip(box: Box, graph: Graph): string {
  return facts(box, graph).join('\n');
}

/** The text for a screen reader, which itself adds whether the box is open, and its level. */
export function label(box: Box, graph: Graph): string {
  return facts(box, graph).join(', ');
}

function facts(box: Box, graph: Graph): string[] {
  const { columns, model } = graph;
  const flops = columns.flops.slice(box.first, box.end).reduce<number>((total, each) => total + (each ?? 0), 0);
  const seconds = columns.seconds.slice(box.first, box.end).reduce<number>((total, each) => total + (each ?? 0), 0);
  const bound = box.kind === 'scope' || !columns.bound[box.first] ? '' : `, ${columns.bound[box.first]}-bound`;
  const cost = [...(flops > 0 ? [scaled(flops, 'FLOPs')] : []), ...(seconds > 0 ? [`est. ${inTime(seconds)}${bound}`] : [])];
  if (box.kind === 'scope') {
    const named = [box.path || model, box.type].filter(Boolean).join(': ');
    return [box.type === '' && box.path !== '' ? box.name : named, counted(box.end - box.first, 'operation'), ...cost];
  }
  const of = box.first;
  const [sqnr, note, saturated] = [columns.sqnr[of], columns.note[of], columns.saturated[of] ?? undefined];
  const line = (columns.line[of] ?? 0) > 0 ? [`line ${columns.line[of]}`] : [];
  const made = [sqnr === null || sqnr === undefined ? undefined : `SQNR ${sqnrText(sqnr)}`, saturated === undefined ? undefined : `${share(saturated, 1)} saturated`, note];
  return [[box.title, columns.name[of]].join(' '), resultText(graph, of), ...made, ...cost, ...line].filter((text): text is string => !!text);
}
