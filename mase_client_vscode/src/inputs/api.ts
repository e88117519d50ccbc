/** The extension's requests about inputs. */
import { PassApi } from '../passes/api';
import { PassTarget } from '../protocol';
import { InputComparison, InputTrial, Inputs } from 'mase-client/records';
import { Server } from '../server';
import { Said } from './messages';

export class InputsApi {
  readonly passes: PassApi;

  constructor(server: Server) {
    this.passes = new PassApi(server);
  }

  async known({ path, model }: PassTarget): Promise<Inputs> {
    const every = await this.passes.inputs({ path });
    const own = every.find((each) => each.model === model);
    if (own === undefined) throw new Error(`${model} is no longer shown: wait until it is traced.`);
    return own;
  }

  /** Try a set, or a set with other texts if some are given. */
  tried({ path, model }: PassTarget, set: string, said?: Said): Promise<InputTrial> {
    return this.passes.tryInputs({ path, model, set, ...said });
  }

  compared({ path, model }: PassTarget, sets: [string, string]): Promise<InputComparison> {
    return this.passes.compareInputs({ path, model, sets });
  }

  /** Write a set as a comment; '' removes its comment. */
  write({ path, model }: PassTarget, set: string, text: string): Promise<boolean> {
    return this.passes.execute('mase.writeInputs', { path, model, set, text });
  }

  pick({ path, model }: PassTarget, set: string): Promise<unknown> {
    return this.passes.execute('mase.pickInputs', { path, model, set });
  }
}
