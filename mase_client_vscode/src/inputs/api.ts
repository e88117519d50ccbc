/** What the extension asks the server about inputs. */
import { PassApi } from '../passes/api';
import { PassTarget } from '../protocol';
import { Server } from '../server';
import { Comparison } from './comparison';
import { Said, Trial } from './messages';

/** A model's sets, as `mase/inputs` tells them. */
export interface Known {
  model: string;
  sets: string[];
  set: string;
}

export class InputsApi {
  readonly passes: PassApi;

  constructor(server: Server) {
    this.passes = new PassApi(server);
  }

  async known({ path, model }: PassTarget): Promise<Known> {
    const every = await this.passes.request<Known[]>('mase/inputs', { path });
    const own = every.find((each) => each.model === model);
    if (own === undefined) throw new Error(`${model} is not shown any more: wait until it is traced.`);
    return own;
  }

  /** What would come of a set; of other texts in it, where some are given. */
  tried({ path, model }: PassTarget, set: string, said?: Said): Promise<Trial> {
    return this.passes.request('mase/tryInputs', { path, model, set, ...said });
  }

  compared({ path, model }: PassTarget, sets: [string, string]): Promise<Comparison> {
    return this.passes.request('mase/compareInputs', { path, model, sets });
  }

  /** Write what a set says as a comment; '' takes its comment away. */
  write({ path, model }: PassTarget, set: string, text: string): Promise<boolean> {
    return this.passes.execute('mase.writeInputs', { path, model, set, text });
  }

  pick({ path, model }: PassTarget, set: string): Promise<unknown> {
    return this.passes.execute('mase.pickInputs', { path, model, set });
  }
}
